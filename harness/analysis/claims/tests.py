"""Judges a claim that tests decide, by a JUnit report of a finished run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from harness.analysis.claims.claim import Claim, Evidence, Result
from harness.errors import HarnessError


def outcomes(report: Path, pattern: str) -> dict[str, str]:
    """Outcome (passed, failed, skipped) of each test whose `classname::name` the pattern finds."""
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise HarnessError(f"{report} is no JUnit report ({error}); run the tests again") from error
    found = {}
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if re.search(pattern, name):
            found[name] = _outcome(case)
    return found


def _outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason). options: `pattern`, a regular expression over test names.

    One failure is a FAIL; PASS needs at least one test that ran and passed.
    """
    if evidence.tests is None or not evidence.tests.is_file():
        return Result.INCONCLUSIVE, "", "no test report"
    found = outcomes(evidence.tests, str(claim.options["pattern"]))
    failed = sorted(name for name, outcome in found.items() if outcome == "failed")
    passed = sum(1 for outcome in found.values() if outcome == "passed")
    observed = f"{passed:,} of {len(found):,} tests passed"
    if failed:
        return Result.FAIL, observed, f"{failed[0]} failed"
    if not passed:
        return Result.INCONCLUSIVE, observed, "none of these tests ran"
    return Result.PASS, observed, "by the test report"
