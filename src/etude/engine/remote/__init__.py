"""Models behind an OpenAI-compatible endpoint: chat completions with tools, for evaluation and judging, never training.

`client.ChatClient` is what other code uses; importing this package imports no HTTP library.
"""
