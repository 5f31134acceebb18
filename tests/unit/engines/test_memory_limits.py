import psutil
import pytest

from regimescope.engines.memory_limits import host_free_bytes

GB = 1_000_000_000


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a maker of control groups on a machine with 64 GB free."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("V", (), {"available": 64 * GB}))
    own, groups = tmp_path / "own", tmp_path / "groups"
    groups.mkdir()

    def make(lines, **files):
        own.write_text(lines)
        for name, content in files.items():
            path = groups / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return host_free_bytes(own, groups)

    return make


def test_machine_without_groups_tells_what_the_system_tells(machine, tmp_path):
    assert host_free_bytes(tmp_path / "absent", tmp_path) == 64 * GB
    assert machine("") == 64 * GB


def test_limit_of_the_group_holds(machine):
    free = machine(
        "0::/job\n", job__memory_dot_max=f"{8 * GB}\n", job__memory_dot_current=f"{3 * GB}\n"
    )
    assert free == 5 * GB


def test_copies_of_files_count_as_free(machine):
    free = machine(
        "0::/job\n",
        job__memory_dot_max=str(8 * GB),
        job__memory_dot_current=str(3 * GB),
        job__memory_dot_stat=f"anon 5\nactive_file 7\ninactive_file {2 * GB}\n",
    )
    assert free == 7 * GB


def test_group_without_a_limit_leaves_the_machine(machine):
    assert (
        machine("0::/job\n", job__memory_dot_max="max\n", job__memory_dot_current=str(3 * GB))
        == 64 * GB
    )


def test_limit_of_a_group_around_it_holds_too(machine):
    free = machine(
        "0::/pod/job\n",
        pod__memory_dot_max=str(4 * GB),
        pod__memory_dot_current=str(3 * GB),
        pod__job__memory_dot_max=str(8 * GB),
        pod__job__memory_dot_current=str(1 * GB),
    )
    assert free == GB


def test_group_that_is_the_root_of_its_container_is_found(machine):
    free = machine("0::/docker/abc\n", memory_dot_max=str(8 * GB), memory_dot_current=str(2 * GB))
    assert free == 6 * GB


def test_first_version_of_groups_is_read(machine):
    free = machine(
        "7:cpu,cpuacct:/\n4:memory:/job\n0::/\n",
        memory__job__memory_dot_limit_in_bytes=str(8 * GB),
        memory__job__memory_dot_usage_in_bytes=str(6 * GB),
        memory__job__memory_dot_stat=f"inactive_file 9\ntotal_inactive_file {GB}\n",
    )
    assert free == 3 * GB


def test_group_past_its_limit_has_nothing(machine):
    free = machine("0::/job\n", job__memory_dot_max="10", job__memory_dot_current="20")
    assert free == 0


@pytest.mark.parametrize("lines", ["garbage", "0:", "4:memory", "::\n\n:::", "0::/../../x"])
def test_lines_of_another_form_are_passed_over(machine, lines):
    assert machine(lines) == 64 * GB


def test_real_machine_has_memory():
    assert 0 < host_free_bytes() <= psutil.virtual_memory().total
