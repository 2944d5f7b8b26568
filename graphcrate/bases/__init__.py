"""Base providers: where the operating system under the wheels comes from."""
