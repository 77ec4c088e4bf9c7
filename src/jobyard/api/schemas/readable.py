"""Base of the views that programs read: FastAPI can return them, and pydantic knows their JSON schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET


class Readable(msgspec.Struct, frozen=True, kw_only=True):
    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """The fields by name, as a pydantic model yields them: `dict(job)`."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not UNSET:
                yield name, value

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415  pydantic itself calls this

        def validate(value: Any) -> Any:
            return value if isinstance(value, cls) else msgspec.convert(value, cls)

        to_builtins = core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        return core_schema.no_info_plain_validator_function(validate, serialization=to_builtins)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        (schema,), components = msgspec.json.schema_components((cls,), ref_template="{name}")
        return _inlined(schema, components)


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    """The schema without references: pydantic numbers its own."""
    if isinstance(schema, list):
        return [_inlined(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return _inlined(components[schema["$ref"]], components)
    return {word: _inlined(each, components) for word, each in schema.items() if word != "discriminator"}
