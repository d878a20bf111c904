-- Layout 6: pages of `job` are filled. They were half empty for claims, each of which wrote a new version of its row beside
-- the old one; jobs in blocks (layouts 4 and 5) are claimed and leased without one. What is left free is for the rows that do
-- change, of lanes, keys and limits: one at a time they stay on their page. Pages that exist are left as they are.
ALTER TABLE job SET (fillfactor = 90);
