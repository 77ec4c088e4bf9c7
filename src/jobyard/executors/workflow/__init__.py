"""Durable functions: workflows whose finished steps are stored and never run twice."""
