"""The examples that tests of properties try: the same in each run (`house`), or new ones by `make fuzz` (`explore`)."""

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine's other work, not about the code. A commit passes or fails:
# every run tries the same examples, and `make fuzz` tries other ones, many more.
settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "explore", deadline=None, max_examples=1000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")
