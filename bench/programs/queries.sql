-- An in-memory database: filled, indexed, joined, grouped, sorted, changed and emptied.
-- The suite replaces @ROWS@.
PRAGMA page_size = 4096;
PRAGMA temp_store = MEMORY;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, tags TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < @ROWS@)
  INSERT INTO item SELECT i, printf('item-%x-%s', i * 7919 % 1000003, substr('abcdefghijklmnopqrstuvwxyz', 1, i % 26)),
    (i * 37 % 10000) / 16.0, json_array(i % 7, printf('tag%d', i % 113), hex(i * 31)) FROM n;
CREATE INDEX item_name ON item(name);
CREATE INDEX item_price ON item(price, name);
CREATE TABLE sale AS SELECT id AS item, id % 365 AS day, id * 17 % 97 AS amount FROM item WHERE id % 3 <> 0;
CREATE INDEX sale_item ON sale(item);
SELECT count(*), sum(amount), max(name) FROM sale JOIN item ON item.id = sale.item;
SELECT day, sum(amount * price), length(group_concat(name, ' ')) FROM sale JOIN item ON item.id = sale.item
  GROUP BY day ORDER BY 2 DESC LIMIT 20;
SELECT name, price, rank() OVER (PARTITION BY id % 11 ORDER BY price DESC, name) AS r FROM item
  ORDER BY r, name LIMIT 40;
SELECT json_extract(tags, '$[1]') AS tag, count(*), sum(length(tags)), count(DISTINCT substr(name, 6, 3))
  FROM item GROUP BY tag ORDER BY 2 DESC, tag LIMIT 20;
UPDATE item SET name = upper(name) || '-' || hex(price), tags = json_insert(tags, '$[3]', name) WHERE id % 2 = 0;
SELECT sum(length(name) + length(tags)) FROM item;
SELECT count(*), sum(length(a.name)) FROM item AS a JOIN item AS b ON b.price = a.price AND b.id % 16 = a.id % 16 AND b.id > a.id;
DELETE FROM item WHERE price < 200 AND id % 5 <> 0;
SELECT count(*), sum(length(json_patch(json_object('name', name, 'tags', json(tags)), '{"seen":true}'))) FROM item;
CREATE TABLE blobs (b BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) INSERT INTO blobs SELECT zeroblob(i * 1000) FROM n;
SELECT sum(length(b)), length(hex(max(b))) FROM blobs;
DROP TABLE blobs;
DELETE FROM sale;
PRAGMA integrity_check;
