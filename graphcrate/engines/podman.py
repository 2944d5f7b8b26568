"""podman through its command line: no daemon to ask, but a store of images and an environment of its own."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphcrate.host import process, settings
from graphcrate.model.errors import BuildError, HostError

#: what podman reads besides what all children get
VARIABLES = (
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "REGISTRY_AUTH_FILE"),
    *("DBUS_SESSION_BUS_ADDRESS", "BUILDAH_ISOLATION"),
)
OLDEST = (3, 0)  #: before, arguments of a build cannot come from the environment
ELSEWHERE = "or use another engine: --engine docker, --engine embedded"


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What podman gets of this environment."""
    return settings.select_for_child(environment, VARIABLES)


def check(environment: Mapping[str, str]) -> str:
    """Its version. Raises HostError when it is missing, too old, or does not work for this user."""
    told = process.run(["podman", "--version"], environment=variables(environment), timeout=60)
    found = re.search(r"podman version (\d+)\.(\d+)\S*", "\n".join(told.lines))
    if told.returncode or found is None:
        raise _broken(told.lines)
    version = found[0].removeprefix("podman version ")
    if (int(found[1]), int(found[2])) < OLDEST:
        raise HostError(
            f"podman {version} is too old for build arguments from the environment: that needs 3.0 or later",
            next_step=f"install a newer podman, {ELSEWHERE}",
        )
    # a plain user without subordinate ids learns it here
    works = process.run(["podman", "info"], environment=variables(environment), timeout=120)
    if works.returncode:
        raise _broken(works.lines)
    return version


def _broken(lines: Sequence[str]) -> HostError:
    last = next((line for line in reversed(lines) if line.strip()), "it says nothing")
    fix = "podman info    shows the same"
    if re.search(r"subuid|subgid|newuidmap|newgidmap", "\n".join(lines)):
        fix = "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER    (then log in anew)"
    return HostError(f"podman does not work here: {last}", next_step=f"{fix}, {ELSEWHERE}")


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """podman's images and containers."""

    environment: Mapping[str, str]  #: as `variables` gives it

    def ask(self, *arguments: str) -> Any:  # noqa: ANN401
        """What a podman command prints as JSON. Raises BuildError when it fails."""
        text = process.output(["podman", *arguments, "--format", "json"], environment=self.environment, timeout=300)
        return json.loads(text or "null") or []

    def call(self, *arguments: str) -> bool:
        """Whether a podman command succeeds."""
        return process.run(["podman", *arguments], environment=self.environment).returncode == 0

    def inspect(self, image: str) -> dict[str, Any] | None:
        """What is known of an image; None where it is not there."""
        try:
            found = self.ask("image", "inspect", image)
        except BuildError:
            return None
        return dict(found[0])

    def dangling(self) -> list[str]:
        """See `engines.builders.kept.Store`, as the following."""
        listed = self.ask("images", "--no-trunc", "--filter", "dangling=true")
        return [whole(image["Id"]) for image in listed]

    def named(self, repository: str) -> dict[str, str]:
        listed = self.ask("images", "--no-trunc", "--filter", f"reference={repository}")
        names = {name: whole(image["Id"]) for image in listed for name in image.get("Names") or ()}
        return {
            name.rpartition(":")[2]: image
            for name, image in names.items()
            if name.rpartition(":")[0].removeprefix("localhost/") == repository
        }

    def name(self, image: str, repository: str, tag: str) -> None:
        process.output(
            ["podman", "tag", image.removeprefix("sha256:"), f"{repository}:{tag}"], environment=self.environment
        )

    def remove(self, reference: str) -> None:
        self.call("rmi", reference.removeprefix("sha256:"))

    def build_containers(self) -> dict[str, str]:
        """Containers that builds work in → id of the image that they started from."""
        listed = self.ask("ps", "--all", "--external", "--no-trunc")
        return {
            container["Id"]: container.get("ImageID") or ""
            for container in listed
            if "buildah" in (container.get("Command") or ())
        }


def whole(image: str) -> str:
    """An image's id as Docker writes it."""
    return image if image.startswith("sha256:") else f"sha256:{image}"
