"""The params of a run, and its platform."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.workflow_files.support import SCAN, json_values, parsed

from jobyard.domain.workflow_files.params import check_params, platform_of
from jobyard.errors import BadOption

DEFINITION = parsed(SCAN)


def refused(given: Any) -> list[tuple[str, str]]:
    with pytest.raises(BadOption) as caught:
        check_params(DEFINITION, given)
    return [(error.option, str(error)) for error in (caught.value, *caught.value.others)]


def test_defaults_are_filled_in_and_optional_params_stay_missing() -> None:
    assert check_params(DEFINITION, {"platform": "ably"}) == {"platform": "ably", "limit": 50}
    given = {"platform": "kurly", "limit": 7, "urls": ["u"]}
    assert check_params(DEFINITION, given) == given


def test_a_whole_number_may_be_written_with_a_point() -> None:
    found = check_params(DEFINITION, {"platform": "ably", "limit": 7.0})["limit"]
    assert (found, type(found)) == (7, int)


def test_all_problems_are_named_with_their_place() -> None:
    assert refused({"platfrom": "ably", "limit": 0, "urls": ["a", 5]}) == [
        ("params/platfrom", 'params.platfrom is an unknown key. Did you mean "platform"?'),
        ("params/limit", "params.limit must be at least 1."),
        ("params/urls/1", "params.urls.1 must be text."),
        ("params", 'params needs the key "platform": The shop.'),
    ]
    assert refused([]) == [("params", "params must be an object.")]
    assert refused({"platform": "albly"}) == [
        ("params/platform", 'params.platform must be one of "ably", "kurly". Did you mean "ably"?')
    ]


@given(st.dictionaries(st.sampled_from(["platform", "limit", "urls", "x"]), json_values | st.just("ably"), max_size=3))
def test_the_schema_of_the_params_says_the_same(given: Any) -> None:
    is_valid = jsonschema_rs.Draft202012Validator(DEFINITION.params_schema).is_valid(given)
    try:
        check_params(DEFINITION, given)
    except BadOption:
        assert not is_valid
    else:
        assert is_valid


@given(
    st.dictionaries(
        st.sampled_from(["platform", "limit", "urls"]),
        st.just("secretword") | st.just(7_654_321) | st.lists(st.just("secretword") | st.just(7_654_321)),
        min_size=1,
    )
)
def test_no_value_is_part_of_an_error(given: Any) -> None:
    try:
        check_params(DEFINITION, given)
    except BadOption as error:
        messages = "".join(str(each) for each in (error, *error.others))
        assert "secretword" not in messages
        assert "7654321" not in messages.replace(",", "")


def platform(template: str | None, params: dict[str, Any], known: Any = None) -> str | None:
    document = {**SCAN, "platform": template} if template else {k: v for k, v in SCAN.items() if k != "platform"}
    return platform_of(parsed(document), params, known)


def test_the_platform_is_named_or_derived_from_params() -> None:
    assert platform(None, {}) is None
    assert platform("ably", {}) == "ably"
    assert platform("${params.platform}", {"platform": "kurly"}) == "kurly"
    assert platform("shop-${params.limit}", {"limit": 3}) == "shop-3"
    assert platform("${params.urls[0] ?? 'ably'}", {}) == "ably"


@pytest.mark.parametrize(
    ("template", "params", "words"),
    [
        ("${params.urls[0]}", {}, "Cannot derive the platform of scan: params.urls is missing"),
        ("${params.limit}", {"limit": 5}, "lead to a platform of scan that is unknown"),
        ("${params.platform}", {"platform": ""}, "lead to a platform of scan that is unknown"),
        ("${params.platform}", {"platform": "albly"}, 'Known platforms: ably, kurly. Did you mean "ably"?'),
    ],
)
def test_a_platform_that_cannot_be_used_is_rejected(template: str, params: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption) as caught:
        platform(template, params, ["ably", "kurly"])
    assert words in str(caught.value)
