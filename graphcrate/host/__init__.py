"""The only doors to the outside: processes, HTTP, the cache folder, the environment, the clock."""
