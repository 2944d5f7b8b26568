"""HTTP: one client with one policy for proxies, certificates, retries and silence.

client.Client ──retry──▶ connections (proxy, credentials) ──pool──▶ urllib3
                │ reach: a server that is down is asked once
                └ patience: how long a silent one is waited for
"""
