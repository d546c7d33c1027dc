"""An import contract that may name modules before they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from importlinter.contracts.forbidden import ForbiddenContract

if TYPE_CHECKING:
    from grimp import ImportGraph
    from importlinter.domain.contract import ContractCheck
    from importlinter.domain.imports import ModuleExpression


class ForbiddenAsItGrows(ForbiddenContract):
    """`forbidden`, leaving out our own modules that do not exist yet instead of failing on them."""

    type_name = "forbidden_as_it_grows"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        def written(module: ModuleExpression) -> bool:
            name = str(module)
            return name in graph.modules or not name.startswith("holdfast.")

        self.source_modules = set(filter(written, self.source_modules))
        self.forbidden_modules = set(filter(written, self.forbidden_modules))
        return super().check(graph, verbose)
