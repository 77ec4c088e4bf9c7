"""Attacks through input and output files: links, FIFOs, devices, path traversal, archives."""

from __future__ import annotations

import io
import zipfile

from jobyard.sandbox.attacks.attack import Attack, Expected, Layer, with_attempt
from jobyard.sandbox.protocol import File, Limits, Tier

NOWHERE: dict[Tier, tuple[Expected, ...]] = {Tier.C: ()}  # no writable folder
NO_FOLDER: dict[Layer, tuple[Expected, ...]] = {Layer.NAMESPACES: ()}
BAD_NAMES = ("../x", "/x", "a/../../x", "a\0b", "x" * 300, "", ".", "..", "a//b", "a/./b")


def _bomb() -> tuple[File, ...]:
    """200 MB of zeros in a 200 kB archive, and a member name with path traversal."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("bomb", "w") as entry:
            for _ in range(200):
                entry.write(bytes(1 << 20))
        archive.writestr("../../../../../../jobyard-attack", b"climbed")
    return (File(name="archive.zip", data=packed.getvalue()),)


def _collect(number: int, name: str, program: str, names: tuple[str, ...], expected: Expected) -> Attack:
    return Attack(number, name, with_attempt(program), expected, tiers=NOWHERE, without=NO_FOLDER, collect=names)


ATTACKS = (
    _collect(
        90,
        "collect a symbolic link",
        "os.symlink('@SECRET_FILE@', 'out')\nos.symlink('/etc/passwd', 'users')\n"
        "os.symlink('/', 'top')\nopen('good', 'w').write('kept')\n",
        ("out", "users", "top/etc/passwd", "good"),
        Expected(files={"good": b"kept"}, notes=3),
    ),
    _collect(
        91,
        "collect from a folder replaced by a link",
        "os.mkdir('one')\nopen('one/file', 'w').write('x')\nos.rename('one', 'two')\nos.symlink('/etc', 'one')\n",
        ("one/passwd", "one/file"),
        Expected(files={}, notes=2),
    ),
    _collect(
        92,
        "collect a FIFO and a folder",
        "os.mkdir('folder')\nattempt('fifo', os.mkfifo, 'pipe')\n",
        ("pipe", "folder"),
        Expected(files={}, notes=2, in_ms=2000),
    ),
    _collect(
        93,
        "collect a device",
        "os.symlink('/dev/zero', 'zero')\n",
        ("zero", "/dev/zero", "../dev/zero"),
        Expected(files={}, notes=3),
    ),
    _collect(
        94,
        "collect beside an oversized file",
        "file = open('large', 'wb')\nfile.write(b'x' * (15 << 20))\nfile.close()\nopen('small', 'w').write('y')\n"
        "open('hole', 'wb').truncate(16 << 20)\n",
        ("small",),
        Expected(files={"small": b"y"}),
    ),
    _collect(
        95,
        "collect 900 files",
        "for number in range(900):\n    open(f'f{number}', 'w').write('x')\n",
        tuple(f"f{number}" for number in range(900)),
        Expected(in_ms=2000),
    ),
    _collect(
        96,
        "collect names outside of the folder",
        "open('good', 'w').write('kept')\n",
        (*BAD_NAMES, "@SECRET_FILE@", "good"),
        Expected(files={"good": b"kept"}, notes=len(BAD_NAMES)),
    ),
    _collect(
        97,
        "hard links to its own and host files",
        "open('one', 'w').write('kept')\nos.link('one', 'two')\nattempt('system', os.link, '/etc/passwd', 'users')\n",
        ("users",),
        Expected(files={}, notes=1),
    ),
    Attack(
        98,
        "input files named like options",
        "import os\nprint(f'names: {sorted(os.listdir())}')\n",
        Expected(prints={"names": r".*'--bind'.*'-c'.*"}),
        tiers=NOWHERE,
        without=NO_FOLDER,
        files=(File(name="-c", data=b"x"), File(name="--bind", data=b"y")),
    ),
    Attack(
        99,
        "zip bomb and path traversal in an archive",
        with_attempt("""\
import zipfile
archive = zipfile.ZipFile("archive.zip")
attempt("bomb", archive.extract, "bomb")
os.path.exists("bomb") and os.unlink("bomb")
def climb():
    for depth in range(1, 6):
        with open("../" * depth + "jobyard-attack", "wb") as file:
            file.write(archive.read(archive.namelist()[1]))
attempt("climb", climb)
"""),
        Expected(prints={"bomb": "ENOSPC|EFBIG|EDQUOT", "climb": "EROFS|EACCES|EPERM"}),
        tiers=NOWHERE,
        without=NO_FOLDER,
        files=_bomb,
        limits=Limits(time_seconds=5),
    ),
    *(
        Attack(
            100 + place,
            f"input file named {name[:20]!r}",
            "print('it ran')\n",
            Expected(refused=True),
            tiers={Tier.C: (Expected(refused=True), Expected(notes=1))},
            without={Layer.NAMESPACES: (Expected(refused=True), Expected(notes=1))},
            files=(File(name=name, data=b"x"),),
        )
        for place, name in enumerate(BAD_NAMES[:8])
    ),
)
