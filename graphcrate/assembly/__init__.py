"""From a request to a tested image: lock, plan, build, checks, suites, report."""
