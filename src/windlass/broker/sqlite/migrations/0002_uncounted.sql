-- Jobs behind the last number of the namespace are not counted yet.
--
-- in:   layout 1
-- out:  the same tables
-- cost: nothing
--
-- One plain job is written without any counter (`single.py`); who counts next counts it. A process that does
-- not know this would give its number away a second time, so it must not open the file any more.
SELECT 1;
