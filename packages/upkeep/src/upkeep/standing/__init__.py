"""The standing of locks: where their files are today, what has updates, what was yanked."""
