"""Time is no verdict: a property holds or not, on a busy machine as on a quiet one."""

from hypothesis import HealthCheck, settings

settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")
