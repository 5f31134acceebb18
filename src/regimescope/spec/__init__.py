"""What is asked for: frozen, without behavior, unknown keys refused. Layer: above ``stats``."""

from regimescope.spec.budgets import MAX_BUDGET as MAX_BUDGET
from regimescope.spec.budgets import MAX_BUDGETS as MAX_BUDGETS
from regimescope.spec.budgets import check_budgets as check_budgets
from regimescope.spec.budgets import parse_budgets as parse_budgets
from regimescope.spec.checks import check_beside_resume as check_beside_resume
from regimescope.spec.checks import check_spec as check_spec
from regimescope.spec.command import to_command as to_command
from regimescope.spec.parsing import load_spec as load_spec
from regimescope.spec.parsing import make_spec as make_spec
from regimescope.spec.parsing import parse_arms as parse_arms
from regimescope.spec.parsing import parse_engine_options as parse_engine_options
from regimescope.spec.scan_spec import DEFAULT_ENGINE as DEFAULT_ENGINE
from regimescope.spec.scan_spec import DEFAULT_HIGH as DEFAULT_HIGH
from regimescope.spec.scan_spec import DEFAULT_LOW as DEFAULT_LOW
from regimescope.spec.scan_spec import DEFAULT_MIN_WIDTH as DEFAULT_MIN_WIDTH
from regimescope.spec.scan_spec import DEFAULT_MODEL as DEFAULT_MODEL
from regimescope.spec.scan_spec import Arm as Arm
from regimescope.spec.scan_spec import Axis as Axis
from regimescope.spec.scan_spec import Isolation as Isolation
from regimescope.spec.scan_spec import KvCache as KvCache
from regimescope.spec.scan_spec import Mode as Mode
from regimescope.spec.scan_spec import Order as Order
from regimescope.spec.scan_spec import ScanSpec as ScanSpec
