"""`etude check`: attempts that should earn much or little, played before a model learns which ones do."""
