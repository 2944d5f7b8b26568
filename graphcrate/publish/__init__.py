"""What may be published, where it goes, what is attested, and verifying that."""
