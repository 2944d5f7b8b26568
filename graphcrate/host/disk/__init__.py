"""Files: the cache, what appears whole or not at all, and documents that travel.

    bytes ──inflating, hashing──▶ atomic ──▶ cache ──cleaning──▶ free space
    a lock, proof or report ──documents──▶ a value of model/

- `cache`: a path that exists is whole. `waiting`: another run makes it just now. `cleaning`: what goes first.
- `sealed`: records with a checksum. `living`: folders of runs, and those of killed ones. `space`: room on a disk.
- `atomic`: files, folders and links elsewhere; `private`: for this user alone; `key_files`: keys to sign with.
- `trees`: of others, walked and removed.
- `ownership`: who may write to a cache. `watching`: a user's files, for changes. `checkout`: this project, by git.
- `os_errors`: words for what the system refused.
"""
