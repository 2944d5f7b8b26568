"""Files: the cache, what appears whole or not at all, and documents that travel.

`atomic` and `cache` write; `cleaning` frees; `waiting` waits for another run; `documents` reads locks, proofs and
reports; `inflating` and `hashing` stream; `os_errors` words what the system refused; `checkout` asks git of this
project."""
