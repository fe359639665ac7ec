"""The demo's world: mail and questions of a fictional company, generated from a seed, in the formats of real data."""
