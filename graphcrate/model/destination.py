"""Where a published image goes, as a person names it (`destinations.parse`)."""

import msgspec


class Registry(msgspec.Struct, frozen=True, kw_only=True, tag="registry", tag_field="kind"):
    """A registry. With a tag it is the whole reference; without, `repository` is what image names are put below."""

    host: str  #: with its port
    repository: str  #: empty: names stand directly below the host
    tag: str = ""


class Acr(msgspec.Struct, frozen=True, kw_only=True, tag="acr", tag_field="kind"):
    """Alibaba Cloud's Container Registry in a region. `repository` and `tag` as in Registry.

    Hosts as its manual has them (help centre, "Terms" and "Exclusive domain names of Personal Edition instances").
    """

    region: str  #: "cn-hangzhou"
    repository: str  #: begins with the namespace
    instance: str = (
        ""  #: name of an Enterprise instance, "crpi-…" of a Personal one since 2024-09; empty: the shared one
    )
    tag: str = ""

    @property
    def host(self) -> str:
        """Reached from anywhere."""
        return self._host("")

    @property
    def vpc_host(self) -> str:
        """Reached from the region's own network, as DSW and DLC are: faster, and without a bill."""
        return self._host("-vpc")

    def _host(self, vpc: str) -> str:
        if not self.instance:
            return f"registry{vpc}.{self.region}.aliyuncs.com"
        if self.instance.startswith("crpi-"):
            return f"{self.instance}{vpc}.{self.region}.personal.cr.aliyuncs.com"
        return f"{self.instance}-registry{vpc}.{self.region}.cr.aliyuncs.com"


class Oras(msgspec.Struct, frozen=True, kw_only=True, tag="oras", tag_field="kind"):
    """A registry that gets a SIF as Apptainer's `oras://` has it. Fields as in Registry."""

    host: str
    repository: str
    tag: str = ""


class Folder(msgspec.Struct, frozen=True, kw_only=True, tag="folder", tag_field="kind"):
    """A folder that several machines or people share."""

    path: str


class Bundle(msgspec.Struct, frozen=True, kw_only=True, tag="bundle", tag_field="kind"):
    """One file that a site without a network takes in."""

    path: str


Destination = Registry | Acr | Oras | Folder | Bundle
