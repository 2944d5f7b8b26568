"""An image's programs and libraries, judged without running anything: what will not load, or not run, and why.

docs/audit.md says what each check looks at, docs/dev/audit.md how its verdicts compare with what happens.
"""
