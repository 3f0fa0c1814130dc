"""The harnesses on trial: each breaks the product on purpose and must be caught (reliability 4)."""
