"""The engine that needs nothing but Python and the cache: its builder, and the sandbox that runs what it built."""
