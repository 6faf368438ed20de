package postgrestest

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// administration is the one connection by which databases are made and removed: a connection starts a process of the server, which
// costs more than to copy a small database.
type administration struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

// copy makes a database of a template. From version 15 the server writes what it copies to its log, block by block, unless it is
// asked to copy files, which for small databases is a fifth of the work.
func (a *administration) copy(ctx context.Context, base, template, name string) error {
	return a.do(ctx, base, func(ctx context.Context, conn *pgx.Conn) error {
		sql := "CREATE DATABASE " + name + " TEMPLATE " + template
		major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
		if version, err := strconv.Atoi(major); err == nil && version >= 15 {
			sql += " STRATEGY FILE_COPY"
		}
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func (a *administration) execute(ctx context.Context, base, sql string) error {
	return a.do(ctx, base, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// do connects if there is no connection, or it was lost.
func (a *administration) do(ctx context.Context, base string, with func(context.Context, *pgx.Conn) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if a.conn != nil && a.conn.Ping(ctx) != nil {
		a.drop()
	}
	if a.conn == nil {
		conn, err := pgx.Connect(ctx, base)
		if err != nil {
			return err
		}
		a.conn = conn
	}
	return with(ctx, a.conn)
}

func (a *administration) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop()
}

// drop closes the connection, if there is one. The lock is held.
func (a *administration) drop() {
	if a.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = a.conn.Close(ctx)
	a.conn = nil
}
