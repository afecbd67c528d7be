"""Pictures and the HTML page: what is drawn, in which words, and that a page needs nothing else."""

import functools
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from costmodel.config import KernelConfig
from costmodel.doctor import diagnose
from costmodel.errors import CostModelError
from costmodel.explain import pictures
from costmodel.explain.page import html_page, write_page
from costmodel.explain.theme import COLOURS, check_plot_file
from costmodel.markup import table
from costmodel.predict import predict_best
from costmodel.profile import load_profile

DRAWN = (
    pictures.roofline_picture, pictures.time_picture, pictures.heat_map,
    pictures.rejection_picture, pictures.overview,
)  # fmt: skip
SHAPES = [((512, 512, 8192), "h200-sxm"), ((1, 4096, 4096), "mi300x"), ((1, 1, 1), "rtx-4090")]


@pytest.fixture(autouse=True)
def _no_answers_or_models_of_a_user(monkeypatch, tmp_path):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))


def texts(picture):
    """Every text of a figure that is shown, with its box in pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    figure = picture.figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for artist in figure.findobj(Text):
        if artist.get_visible() and artist.get_text().strip():
            yield artist.get_text(), artist.get_window_extent(canvas.get_renderer())


#: ticks outside an axis' limits are laid out and not drawn
TICK = re.compile(r"\$.*\$|[\d.−-]*")


@functools.cache
def drawn(draw, shape, chip):
    return draw(predict_best(shape, chip))


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize(("shape", "chip"), SHAPES)
def test_no_text_of_a_picture_is_cut_off_at_its_edge(draw, shape, chip):
    picture = drawn(draw, shape, chip)
    width, height = picture.figure.bbox.size
    told = list(texts(picture))
    assert told
    for text, box in told:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
        assert inside or TICK.fullmatch(text), text


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize(("shape", "chip"), SHAPES)
def test_no_two_texts_of_a_picture_overlap(draw, shape, chip):
    told = [(text, box) for text, box in texts(drawn(draw, shape, chip))
            if not TICK.fullmatch(text)]  # fmt: skip
    for place, (text, box) in enumerate(told):
        for other, beside in told[place + 1 :]:
            across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
            down = min(box.y1, beside.y1) - max(box.y0, beside.y0)
            assert across <= 1 or down <= 1, (text, other)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_each_ending_is_a_file_of_its_kind(ending, tmp_path):
    path = tmp_path / f"roof.{ending}"
    pictures.roofline_picture(predict_best((512, 512, 512), "h200-sxm"), path)
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert path.read_bytes().startswith(head)


def test_the_bars_of_a_configuration_add_up_to_its_estimate():
    from costmodel.config import ConfigTable
    from costmodel.physics.estimate import estimate_columns

    prediction = predict_best((512, 512, 8192), "h200-sxm")
    axes = pictures.time_picture(prediction).figure.axes[0]
    widths = [bars[0].get_width() for bars in axes.containers]
    physics = estimate_columns(
        prediction.problem, ConfigTable.of(prediction.config), prediction.profile
    )
    assert sum(widths) == pytest.approx(physics.time_us[0])


def test_the_heat_map_holds_the_best_of_each_tile_over_the_best():
    prediction = predict_best((4096, 4096, 4096), "h200-sxm")
    axes = pictures.heat_map(prediction).figure.axes[0]
    grid = np.asarray(axes.images[0].get_array(), dtype=float)
    columns = [label.get_text() for label in axes.get_xticklabels()]
    rows = [label.get_text() for label in axes.get_yticklabels()]
    at = rows.index(str(prediction.config.block_m)), columns.index(str(prediction.config.block_n))
    assert grid[at] == np.nanmin(grid) == 1.0


def test_the_rejections_are_the_predictions_own():
    prediction = predict_best((4096, 4096, 4096), "h200-sxm")
    axes = pictures.rejection_picture(prediction).figure.axes[0]
    bars = [bar.get_width() for bar in axes.patches]
    assert bars == list(prediction.rejections.counts().values())
    legal = predict_best((4096, 4096, 4096), "h200-sxm", configs=[KernelConfig("tile", 64, 64, 64)])
    told = [text for text, _ in texts(pictures.rejection_picture(legal))]
    assert "every candidate can run" in told


def test_the_colours_differ_in_grey_too():
    def grey(colour):
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    parts = [grey(COLOURS[name]) for name in ("loop", "epilogue", "split", "start")]
    neighbours = np.abs(np.diff(np.sort(parts)))
    # hatches tell apart what grey does not; loop, the largest, has none and stands alone
    assert neighbours.max() > 20 and min(abs(parts[0] - other) for other in parts[1:]) > 10


def test_a_file_that_cannot_be_drawn_is_an_error_before_any_work(tmp_path):
    with pytest.raises(CostModelError, match=r"ending in \.png, \.svg, \.pdf"):
        check_plot_file(tmp_path / "roof.bmp")
    with pytest.raises(CostModelError, match="folder that exists"):
        check_plot_file(tmp_path / "none" / "roof.png")


# --- the page ------------------------------------------------------------------------------


class Page(HTMLParser):
    """Which tags open and close, and what they point at."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_needs_no_other_file_and_runs_no_code():
    text = html_page(predict_best((512, 512, 8192), "h200-sxm"))
    page = Page(text)
    assert page.open == []
    assert len(page.links) == 4 and all(link.startswith("data:image/svg") for link in page.links)
    assert "<script" not in text and "http" not in text


def test_the_page_tells_what_the_report_tells():
    prediction = predict_best((512, 512, 8192), "h200-sxm")
    words = " ".join(Page(html_page(prediction)).words)
    parts = ("low block count", "long k", str(prediction.config), "Hardware mapping",
             "Data scheduling", "Compute pipeline", "one knob at a time", "num_stages")  # fmt: skip
    for part in parts:
        assert part in words, part


def test_the_pictures_of_a_page_are_well_formed_svg():
    picture = pictures.time_picture(predict_best((512, 512, 8192), "h200-sxm"))
    assert ElementTree.fromstring(picture.svg()).tag.endswith("svg")


def test_what_comes_from_a_user_is_escaped():
    assert "<script>" not in table([("<script>", 1, 2.5)], ("<script>",), "<script>")


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs a browser")
def test_a_browser_shows_the_page(tmp_path):
    page, shot = tmp_path / "page.html", tmp_path / "page.png"
    write_page(predict_best((512, 512, 8192), "h200-sxm"), page)
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={shot}",
         "--window-size=1100,2400", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    from matplotlib.image import imread

    pixels = imread(shot)[..., :3]
    assert pixels.shape[:2] == (2400, 1100)
    # ink in every quarter of the upper half: text above, pictures below it
    quarters = [half for part in np.array_split(pixels[:1200], 4) for half in (part,)]
    assert all((quarter < 0.9).mean() > 0.005 for quarter in quarters)


# --- notebooks -----------------------------------------------------------------------------


def test_results_show_themselves_as_tables_in_a_notebook():
    prediction = predict_best((512, 512, 8192), "h200-sxm")
    for shown in (prediction, load_profile("h200-sxm"), diagnose("CUDA out of memory")):
        page = Page(shown._repr_html_())
        assert page.open == [] and "<table>" in shown._repr_html_()
    assert pictures.time_picture(prediction)._repr_png_().startswith(b"\x89PNG")


def test_ranking_and_rejections_are_frames():
    prediction = predict_best((4096, 4096, 4096), "h200-sxm")
    frame = prediction.ranking.to_frame(10)
    assert len(frame) == 10 and frame["time_us"].is_monotonic_increasing
    assert KernelConfig(**frame.drop(columns=["time_us", "bound"]).iloc[0].to_dict())
    rejected = prediction.rejections.to_frame()
    assert (rejected["needed"] > rejected["limit"]).all()
    assert rejected["reason"].value_counts().to_dict() == prediction.rejections.counts()
    assert json.dumps(frame.to_dict(orient="records"))
