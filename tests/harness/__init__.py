"""Tests of the harness; none needs torch or SGLang."""
