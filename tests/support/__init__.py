"""What several test files share: small worlds that a tiny model can play."""
