"""A client of OCI registries (distribution specification 1.1), over `patienthttp`.

push ──upload──▶ repository ──session──▶ patienthttp
                     │           ├ realms: which token server may see a login
                 referrers       └ credentials: the logins of docker and podman

`reference` parses names of images. `errors` has failures as values; `session.Session` has the methods that a program
overrides to raise errors of its own.
"""
