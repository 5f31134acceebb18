"""Write docs/paper.md from the published figures that come with the package."""

from __future__ import annotations

from pathlib import Path

from regimescope.analysis.paper import paper_claims
from regimescope.report.paper import claims_page

PAGE = Path(__file__).parent.parent / "docs" / "paper.md"

if __name__ == "__main__":
    PAGE.write_text(claims_page(paper_claims()), encoding="utf-8")
