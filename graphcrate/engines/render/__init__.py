"""Texts from a plan: a Dockerfile, Singularity definitions, requirements, a page for people. Pure.

Each text has its own template and says all that the plan says: `complete` refuses a text that lacks a step.
"""

from graphcrate.engines.render.definition import DefinitionForm, definition
from graphcrate.engines.render.dockerfile import DockerForm, dockerfile
from graphcrate.engines.render.page import readme
from graphcrate.engines.render.requirements import requirements, sources

__all__ = ["DefinitionForm", "DockerForm", "definition", "dockerfile", "readme", "requirements", "sources"]
