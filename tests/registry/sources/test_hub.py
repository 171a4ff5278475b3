"""The Hub as a source, by the real client against a real server: what it lists, its bytes, and who gets the token."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from engine.cancel import Cancel
from engine.errors import DownloadError
from registry.sources.hub import Hub
from registry.sources.source import AccessError, GoneError, Source
from tests.hub_faults import Big, NoRange
from tests.hub_server import HubServer
from tests.registry.sources.conftest import CONFIG, FILE, GGUF, ID, git_sha1, listed, read


def test_a_repository_has_its_files_with_sizes_hashes_and_the_commit(hub: HubServer, source: Source) -> None:
    found = source.repository(ID, Cancel())
    assert (found.id, found.revision, found.source) == (ID, hub.commit(ID), "hub")
    assert (found.licence, found.family, found.gated) == ("apache-2.0", "llama", False)
    assert (found.downloads, found.likes, found.updated) == (7, 3, "2026-05-31")
    files = {file.path: file for file in found.files}
    assert set(files) == {"tiny-Q4_K_M.gguf", "config.json", "a folder/é 山.gguf"}
    weights, config = files["tiny-Q4_K_M.gguf"], files["config.json"]
    assert (weights.nbytes, weights.sha256, weights.git_sha1) == (len(GGUF), hashlib.sha256(GGUF).hexdigest(), "")
    assert (config.nbytes, config.sha256, config.git_sha1) == (len(CONFIG), "", git_sha1(CONFIG))
    assert all(file.revision == hub.commit(ID) for file in found.files)


def test_a_repository_is_found_at_a_named_revision_only(hub: HubServer, source: Hub) -> None:
    assert source.repository(ID, Cancel(), "main").revision == hub.commit(ID)
    with pytest.raises(GoneError, match="no such version"):
        source.repository(ID, Cancel(), "older/one")


def test_a_search_gives_the_most_downloaded_first_over_several_pages(hub: HubServer, source: Hub) -> None:
    for number in range(7):
        hub.add(f"maker/tiny-{number}", {"a.gguf": b"x"}, downloads=100 + number)
    hub.add("maker/tiny-without", {"model.safetensors": b"x"}, tags=(), downloads=1000)
    hub.page = 3
    found = source.search("tiny", 6, Cancel())
    assert [each.id for each in found] == [f"maker/tiny-{number}" for number in (6, 5, 4, 3, 2, 1)]
    assert found[0].downloads == 106 and found[0].family == "llama" and found[0].licence == "apache-2.0"
    assert found[0].files == ()
    assert [each.id for each in source.search("TINY org", 5, Cancel())] == [ID]
    assert source.search("nothing like it", 5, Cancel()) == ()


@pytest.mark.parametrize("id", ["tiny", "../etc", "a/b/c", "a/..", "a b/c", "datasets/a/b", ""])
def test_a_name_that_is_none_is_never_asked_for(hub: HubServer, source: Hub, id: str) -> None:
    with pytest.raises(DownloadError, match="not the name of a repository"):
        source.repository(id, Cancel())
    assert hub.requests == []


def test_bytes_are_those_of_the_file_whole_and_in_parts(hub: HubServer, source: Hub) -> None:
    file = listed(source)
    assert read(source, file) == GGUF
    assert read(source, file, 1000) == GGUF[1000:]
    assert read(source, file, 10, 19) == GGUF[10:20]
    assert read(source, file, 0, 0) == GGUF[:1]
    assert read(source, file, 5000, 10**9) == GGUF[5000:]
    assert hub.fetched(FILE) == [(0, 5120), (1000, 5120), (10, 20), (0, 1), (5000, 5120)]
    assert read(source, listed(source, "config.json")) == CONFIG
    assert read(source, listed(source, "a folder/é 山.gguf"), 9) == GGUF[9:999]


def test_nothing_is_asked_for_beyond_the_end(hub: HubServer, source: Hub) -> None:
    file = listed(source)
    asked = len(hub.requests)
    assert read(source, file, len(GGUF)) == b"" and len(hub.requests) == asked


def test_a_server_without_ranges_begins_anew_and_says_so(hub: HubServer, source: Hub) -> None:
    hub.fault(FILE, NoRange())
    with source.open(listed(source), 1000, Cancel()) as opened:
        assert opened.first == 0 and b"".join(opened.chunks) == GGUF


def test_no_more_than_was_asked_for_is_given(hub: HubServer, source: Hub) -> None:
    hub.fault(FILE, NoRange())
    with source.open(listed(source), 10, Cancel(), 19) as opened:
        assert opened.first == 0 and b"".join(opened.chunks) == GGUF[:20]


def test_a_large_file_comes_in_pieces(hub: HubServer, source: Hub) -> None:
    big = Big(5 << 20, seed=3)
    hub.add("org/big", {"big.gguf": big})
    file = listed(source, "big.gguf", "org/big")
    digest, longest = hashlib.sha256(), 0
    with source.open(file, 0, Cancel()) as opened:
        for chunk in opened.chunks:
            digest.update(chunk)
            longest = max(longest, len(chunk))
    assert digest.hexdigest() == file.sha256 and longest <= 1 << 20


def test_the_token_goes_to_the_hub_alone(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    source = Hub.from_environment()
    hub.add("org/closed", {"m.gguf": GGUF, "config.json": CONFIG}, gated=True)
    assert source.repository("org/closed", Cancel()).gated
    assert read(source, listed(source, "m.gguf", "org/closed")) == GGUF
    assert read(source, listed(source, "config.json", "org/closed")) == CONFIG
    asked = {host: [each for each in hub.requests if each.host == host] for host in ("hub", "cdn")}
    assert all(each.headers["authorization"] == f"Bearer {hub.token}" for each in asked["hub"])
    assert asked["cdn"] and not any("authorization" in each.headers for each in asked["cdn"])
    assert not any(hub.token in str(each.headers) for each in asked["cdn"])


def test_without_a_token_a_gated_repository_is_listed_and_its_files_are_refused(hub: HubServer, source: Hub) -> None:
    hub.add("org/closed", {"m.gguf": GGUF}, gated=True)
    file = listed(source, "m.gguf", "org/closed")
    with pytest.raises(AccessError, match=r"agreed to its conditions.*/org/closed .*enter an access token"):
        read(source, file)
    assert not any("authorization" in each.headers for each in hub.requests)


def test_a_private_repository_is_seen_with_a_token_only(hub: HubServer, source: Hub) -> None:
    hub.add("org/own", {"m.gguf": GGUF}, private=True)
    with pytest.raises(GoneError, match="enter an access token"):
        source.repository("org/own", Cancel())
    assert source.search("own", 5, Cancel()) == ()
    with_token = replace(source, token=hub.token)
    assert with_token.repository("org/own", Cancel()).files
    assert [each.id for each in with_token.search("own", 5, Cancel())] == ["org/own"]


def test_a_wrong_token_is_told_and_not_repeated(hub: HubServer, source: Hub) -> None:
    wrong = replace(source, token="hf_wrongwrongwrong")
    with pytest.raises(AccessError, match="does not accept the access token") as caught:
        wrong.repository(ID, Cancel())
    assert "wrongwrong" not in f"{caught.value!r}{wrong!r}"
