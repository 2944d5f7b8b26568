"""Texts from a plan: a Dockerfile, Singularity definitions, requirements, a page for people. Pure.

Each text has its own template and says all that the plan says: `complete` refuses a text that lacks a step.
"""

from graphcrate.render.definition import DefinitionForm, definition
from graphcrate.render.dockerfile import DockerForm, dockerfile
from graphcrate.render.page import readme
from graphcrate.render.requirements import requirements, sources

__all__ = ["DefinitionForm", "DockerForm", "definition", "dockerfile", "readme", "requirements", "sources"]
