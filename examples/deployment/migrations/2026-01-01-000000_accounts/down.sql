DROP TABLE files;
DROP TABLE notes;
DROP TABLE users;
