"""The stages composed, a few lines each: what the command line does, as Python calls."""

from regimescope.api.comparing import check as check
from regimescope.api.comparing import compare as compare
from regimescope.api.comparing import kv_ablation as kv_ablation
from regimescope.api.exporting import export as export
from regimescope.api.judging import REPORT as REPORT
from regimescope.api.judging import analyze as analyze
from regimescope.api.judging import load as load
from regimescope.api.judging import load_folder as load_folder
from regimescope.api.judging import publish as publish
from regimescope.api.measuring import default_folder as default_folder
from regimescope.api.measuring import resume as resume
from regimescope.api.measuring import scan as scan
from regimescope.store import load_run as load_run
