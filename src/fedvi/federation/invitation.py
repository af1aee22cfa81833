"""Making a federation: the coordinator's folder with its file, and a startup kit for every site.

folder/   federation.toml, schema.toml   as everybody has them
          coordinator.db                 factors, product, history
          server/ admin/ ca/             the engine's, for the coordinator alone
          certificates/SITE.crt          by which a site's messages are known
          kits/SITE.zip                  for one site alone: it holds the site's key
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import zipfile
from pathlib import Path

from fedvi.errors import InputError
from fedvi.federation.coordinator_file import FILE, CoordinatorFile
from fedvi.federation.description import Description
from fedvi.files import new_folder, replacing

KITS = "kits"
KIT_FILES = (
    *("startup/client.crt", "startup/client.key", "startup/rootCA.pem"),
    *("fedvi/federation.toml", "fedvi/schema.toml"),
)
LARGEST_FILE = 16 << 20


def make_federation(description: Description, folder: Path) -> Description:
    """Make the folder, or nothing at all, and return the description with its identity."""
    from fedvi.federation.transports.flare import make_kits

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"Expected a new or empty folder, got {folder}, which is not. Choose another with --out.")
    description = dataclasses.replace(description, identity=secrets.token_hex(16))
    with new_folder(folder) as unfinished:
        make_kits(description, unfinished)
        description.save(unfinished)
        CoordinatorFile.create(unfinished / FILE, description).close()
        for site in description.sites:
            _zip(unfinished / KITS / site)
    return description


def add_to_federation(folder: Path, name: str) -> Path:
    """Let one more site take part, and return its kit.

    The coordinator's file comes last: who is killed before has added nobody and may ask again. The kit of such an
    attempt was given to nobody, and is made anew.
    """
    from fedvi.federation.transports.flare import add_site

    with CoordinatorFile.open(folder / FILE) as store:
        if name in store.names:
            raise InputError(f"Expected a new site, got {name!r}, which takes part already.")
        description = dataclasses.replace(store.description, sites=(*store.names, name))
        shutil.rmtree(folder / KITS / name, ignore_errors=True)
        add_site(description, folder, name)
        kit = _zip(folder / KITS / name)
        description.save(folder)
        store.add_site(name)
    return kit


def unpack_kit(kit: Path) -> Path:
    """Return the folder of a kit; one that came as a zip is unpacked beside it, once."""
    if kit.is_dir():
        return kit
    if not kit.is_file():
        raise InputError(f"Expected a kit, a folder or a zip from the coordinator, got {kit}: there is none.")
    folder = kit.with_suffix("")
    if folder.exists():
        return folder
    files = _read_kit(kit)
    with new_folder(folder) as unfinished:
        for name, content in files.items():
            path = unfinished / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(content)
    return folder


def _read_kit(kit: Path) -> dict[str, bytes]:
    """Return the files of a kit, which are these and no others: whoever made it cannot bring in anything to be run."""
    try:
        with zipfile.ZipFile(kit) as archive:
            found = {each.filename: each.file_size for each in archive.infolist() if not each.is_dir()}
            if set(found) != set(KIT_FILES):
                odd = sorted(set(found) ^ set(KIT_FILES))[0]
                what = "a file that no kit has" if odd in found else "no such file"
                raise InputError(f"Expected {kit} to be a kit, got {what}: {odd!r}. Ask the coordinator for it again.")
            if max(found.values()) > LARGEST_FILE:
                raise InputError(f"Expected files of at most {LARGEST_FILE} bytes in {kit}, got {max(found.values())}.")
            return {name: archive.read(name) for name in KIT_FILES}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise InputError(f"Expected a kit, got {kit}, which is no zip file or damaged: {error}. Ask again.") from None


def _zip(kit: Path) -> Path:
    """Pack a kit for its way to the site, readable for nobody else here. Where it belongs it is whole and on disk."""
    path = kit.with_suffix(".zip")
    with replacing(path, private=True) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(kit.rglob("*")):
            archive.write(each, each.relative_to(kit))
    shutil.rmtree(kit)
    return path
