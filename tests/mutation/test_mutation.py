"""The runner of mutants on a small package, and the committed list on the code as it is."""

import pytest

from tests.mutation.__main__ import LIST, ROOT, ListError, Mutant, changed, main, read, run

SOURCE = "def area(width, height):\n    return width * height\n"
TEST = "from shapes import area\n\n\ndef test_area():\n    assert area(2, 3) == 6\n"


@pytest.fixture
def package(tmp_path):
    root = tmp_path / "root"
    (root / "shapes").mkdir(parents=True)
    (root / "shapes" / "__init__.py").write_text(SOURCE)
    (root / "test_shapes.py").write_text(TEST)
    return root


def mutant(old, new, name="product", test="test_shapes.py::test_area"):
    return Mutant(name=name, file="shapes/__init__.py", old=old, new=new, tests=(test,))


def test_what_a_test_notices_and_what_not(package, capsys):
    # 2 + 3 is not 6, 3 * 2 is; an endless loop of imports or a syntax error would be no finding
    found = run([mutant("* height", "+ height", "sum"), mutant("width * height", "height * width", "turned")], package)
    assert found == ["turned"]
    assert capsys.readouterr().out.splitlines() == ["noticed  sum", "NOT noticed  turned"]
    assert (package / "shapes" / "__init__.py").read_text() == SOURCE


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (mutant("depth", "x"), "product: 'depth' occurs 0 times in shapes/__init__.py, not once"),
        (mutant("width", "x"), "product: 'width' occurs 2 times"),
        (mutant("* height", "* height"), "product: names the same text"),
        (mutant("* height", "*"), "tests do not run: test_shapes.py"),
        (mutant("* height", "+ height", test="test_shapes.py::test_volume"), "tests do not run: test_shapes.py"),
    ],
)
def test_an_entry_at_fault_is_an_error_and_no_finding(package, entry, message):
    with pytest.raises(ListError) as caught:
        run([entry], package)
    assert message in str(caught.value)


def test_tests_that_fail_anyway_notice_nothing(package):
    (package / "test_shapes.py").write_text(TEST.replace("== 6", "== 7"))
    with pytest.raises(ListError, match="fails without any change"):
        run([mutant("* height", "+ height")], package)


def test_a_list_at_fault_is_told_in_one_line(tmp_path, capsys):
    path = tmp_path / "list.yaml"
    path.write_text("- {name: a, file: b, old: c, tests: []}\n")
    assert main(["--list", str(path)]) == 2
    assert "missing required field `new`" in capsys.readouterr().err


def test_every_mutant_of_the_list_is_one_change_of_the_code():
    mutants = read(LIST)
    assert len({one.name for one in mutants}) == len(mutants)
    for one in mutants:
        assert changed(one, ROOT)
        assert all((ROOT / test.split("::")[0]).is_file() for test in one.tests), one.name
