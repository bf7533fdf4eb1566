"""Claims (`claims.yaml`) and their verdicts: PASS, FAIL or INCONCLUSIVE for each hardware."""
