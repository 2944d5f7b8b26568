"""Texts from a plan: a Dockerfile, a Singularity definition, requirements, a page for people. Pure."""

from graphcrate.engines.render.definition import definition
from graphcrate.engines.render.dockerfile import dockerfile
from graphcrate.engines.render.requirements import readme, requirements, sources

__all__ = ["definition", "dockerfile", "readme", "requirements", "sources"]
