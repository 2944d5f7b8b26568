"""Texts from a plan: a Dockerfile, a Singularity definition, requirements, a page for people; jobs (`jobs`). Pure."""

from graphcrate.render.texts import definition, dockerfile, readme, requirements_text, sources_text

__all__ = ["definition", "dockerfile", "readme", "requirements_text", "sources_text"]
