"""Parts of Grafana dashboards that carry their queries, so that a test can ask a Prometheus each of them. Grafana's own
typed builders (grafana-foundation-sdk) write the JSON. Used by `dashboards`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = models.DataSourceRef("prometheus", "${datasource}")
Kind = type[timeseries.Panel] | type[stat.Panel] | type[table.Panel] | type[statetimeline.Panel]
Json = dict[str, Any]
Levels = tuple[tuple[float | None, str], ...]
"""(value, colour): the colour from this value on; the first has no value."""
TAG = "speculative-operator"
"""Of every dashboard: by it each links to the others."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query and what its lines are called."""

    expr: str
    legend: str = ""
    needs: str = ""
    """What an object must have for the query to show something; empty: nothing that not every object has."""


def thresholds(levels: Levels) -> dashboard.ThresholdsConfig:
    """Colours by value."""
    steps = [models.Threshold(value, colour) for value, colour in levels]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def words(**shown: tuple[str, str]) -> list[models.ValueMapping]:
    """Text and colour in place of a value: `_1=("yes", "green")` is what 1 looks like."""
    return [models.ValueMap({key.strip("_"): models.ValueMappingResult(*one) for key, one in shown.items()})]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `fields`: by the name of a line or column, what Grafana is to do otherwise there."""

    title: str
    queries: tuple[Query, ...]
    kind: Kind = timeseries.Panel
    unit: str = "short"
    text: str = ""
    """What the reader should know; empty: the title says it."""
    width: int = 8
    levels: Levels = ()
    values: list[models.ValueMapping] = field(default_factory=list)
    fields: Mapping[str, Json] = field(default_factory=dict)
    link: str = ""
    """Address that a click on a value opens; empty: none."""
    names: bool = False
    """A stat shows the name of its line."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Of a table: field -> title, in this order."""

    def build(self, number: int) -> timeseries.Panel | stat.Panel | table.Panel | statetimeline.Panel:
        """The panel with an id."""
        instant = self.kind in (stat.Panel, table.Panel)
        panel = self.kind().id(number).title(self.title).datasource(SOURCE).unit(self.unit).span(self.width)
        panel.height(4 if self.kind is stat.Panel else 8).description(self.text).mappings(self.values)
        panel.targets([_target(query, chr(ord("A") + at), instant) for at, query in enumerate(self.queries)])
        if self.levels:
            panel.thresholds(thresholds(self.levels))
        if self.link:
            panel.data_links([dashboard.DashboardLink("Open").url(self.link)])
        for name, changes in self.fields.items():
            panel.override_by_name(name, [models.DynamicConfigValue(key, value) for key, value in changes.items()])
        if isinstance(panel, stat.Panel):
            panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
            panel.text_mode(options.BigValueTextMode.NAME if self.names else options.BigValueTextMode.AUTO)
        elif isinstance(panel, table.Panel):
            at = {"indexByName": {key: place for place, key in enumerate(self.columns)}, "renameByName": self.columns}
            merge = models.DataTransformerConfig("merge", options={})
            organize = models.DataTransformerConfig("organize", options={"excludeByName": {"Time": True}, **at})
            panel.transformations([merge, organize])
        elif isinstance(panel, timeseries.Panel):
            panel.legend(common.VizLegendOptions().show_legend(True).display_mode(options.LegendDisplayMode.LIST))
            panel.tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI))
            if self.levels:
                dashes = common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED)
                panel.thresholds_style(dashes)
        return panel


@dataclass(frozen=True, slots=True)
class Variable:
    """What a reader chooses: values of a label of the series that `selector` selects."""

    name: str
    label: str
    selector: str
    every: bool = False
    """Several may be chosen, or all, series without the label included."""

    @property
    def query(self) -> str:
        return f"label_values({self.selector}, {self.name})"

    def build(self) -> dashboard.QueryVariable:
        found = dashboard.QueryVariable(self.name).label(self.label).datasource(SOURCE)
        found.query({"query": self.query, "refId": self.name})
        found.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
        if self.every:
            found.multi(True).include_all(True).all_value(".*").current(
                models.VariableOption(text="All", value="$__all")
            )
        return found


class Annotation(models.AnnotationQuery, Builder[models.AnnotationQuery]):
    """Marks on the time axis wherever `query` is 1, named by its legend. The builders lack the fields of Prometheus for
    it (Grafana, packages/grafana-prometheus/src/annotations.ts)."""

    def __init__(self, name: str, query: Query, colour: str) -> None:
        super().__init__(name=name, datasource=SOURCE, icon_color=colour, expr=query.expr)
        self.query = query

    def build(self) -> models.AnnotationQuery:
        return self

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "titleFormat": f"{self.name}: {self.query.legend}", "step": "30s"}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard: rows of panels, marks on their time axes, and the variables that a reader chooses."""

    uid: str
    title: str
    text: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    variables: tuple[Variable, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    @property
    def queries(self) -> Iterator[tuple[str, Query]]:
        """(title of the panel or name of the annotation, query)."""
        yield from ((panel.title, query) for _, panels in self.rows for panel in panels for query in panel.queries)
        yield from ((one.name, one.query) for one in self.annotations)

    def json(self) -> Json:
        """As Grafana imports it."""
        board = dashboard.Dashboard(self.title).uid(self.uid).description(self.text).tags([TAG]).editable()
        board.time("now-6h", "now").refresh("30s").annotations(list(self.annotations))
        source = dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        board.variables([source, *(one.build() for one in self.variables)])
        others = dashboard.DashboardLink("Speculative decoding").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
        board.links([others.as_dropdown(True).keep_time(True)])
        number = 0
        for title, panels in self.rows:
            board.with_row(dashboard.Row(title).id(number := number + 1))
            for panel in panels:
                board.with_panel(panel.build(number := number + 1))
        found: Json = json.loads(json.dumps(board.build(), cls=JSONEncoder))
        return found


def _target(query: Query, reference: str, instant: bool) -> prometheus.Dataquery:
    found = prometheus.Dataquery().ref_id(reference).expr(query.expr).datasource(SOURCE)
    found = found.instant() if instant else found.range()
    if query.legend:
        return found.legend_format(query.legend).format(PromQueryFormat.TIME_SERIES)
    return found.format(PromQueryFormat.TABLE)
