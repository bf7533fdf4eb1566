"""Table 1 says of which rule M_sat is the threshold."""

from __future__ import annotations

from harness.tables import table01
from harness.tables.sources import Sources


def test_m_sat_is_of_the_saturation_rule_and_no_more_where_auto_has_costs() -> None:
    rows = {str(row["symbol"]): str(row["meaning"]) for row in table01.build(Sources((), ())).rows}
    rule, *profiles = rows["M_sat"].split("; ")
    assert "saturation rule" in rule
    said = dict(profile.split(": ", 1) for profile in profiles)
    assert said["h200"] == "4 (--granikv-backend auto uses the fitted cost model there)"
    assert said["cpu"] == "8"
