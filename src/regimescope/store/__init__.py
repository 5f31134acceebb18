"""The run folder: append, load, migrate, refuse what is not ours. Layer: ``store``.

::

    <run>/run.json        header, replaced atomically
          trials.jsonl    one finished trial a line, on disk the moment it ends
          events.jsonl    one event a line

Files are input too: a folder may come from a stranger. Loading one executes nothing, follows no
link, waits for no pipe and takes a bounded amount of memory (``limits``).
"""

from regimescope.store.append import RunFolder as RunFolder
from regimescope.store.append import check_free as check_free
from regimescope.store.files import replace_file as replace_file
from regimescope.store.limits import EVENTS as EVENTS
from regimescope.store.limits import HEADER as HEADER
from regimescope.store.limits import TRIALS as TRIALS
from regimescope.store.load import is_run_folder as is_run_folder
from regimescope.store.load import load_header as load_header
from regimescope.store.load import load_run as load_run
