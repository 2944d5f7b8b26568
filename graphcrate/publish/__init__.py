"""Publishing: what may go out, where it goes, what is attested, and verifying that."""
