-- One plain job is written as its body alone, with its head packed beside it.
--
-- in:   layout 3
-- out:  `body.head`; jobs that came alone are counted
-- cost: one look at those, 513 at the most
--
-- The next transaction of any other kind writes the heads behind the namespace's last number into `job` and counts
-- them (`single.py`). A process that does not know this would not see those jobs, so it must not open the file.
ALTER TABLE body ADD COLUMN head BLOB;
INSERT INTO tally (q, t, state, count)
SELECT q, t, state, COUNT(*) FROM job WHERE n > (SELECT number FROM namespace) GROUP BY q, t, state
ON CONFLICT (q, t, state) DO UPDATE SET count = count + excluded.count;
UPDATE namespace SET
    bytes = bytes + (SELECT COALESCE(SUM(size), 0) FROM job WHERE n > namespace.number),
    numbered_at = MAX(numbered_at, (SELECT COALESCE(MAX(accepted_at), 0) FROM job WHERE n > namespace.number)),
    number = MAX(number, (SELECT COALESCE(MAX(n) + 1, 0) FROM job WHERE n > namespace.number));
