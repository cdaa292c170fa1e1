// The peer gorilla/websocket on Go's net/http: sends each message back, a goroutine a connection.
// server ADDRESS [deflate]
package main

import (
	"log"
	"net/http"
	"os"
	"runtime"

	"github.com/gorilla/websocket"
)

func main() {
	runtime.GOMAXPROCS(2)
	deflates := len(os.Args) > 2 && os.Args[2] == "deflate"
	upgrader := websocket.Upgrader{EnableCompression: deflates}
	echo := func(response http.ResponseWriter, request *http.Request) {
		socket, err := upgrader.Upgrade(response, request, nil)
		if err != nil {
			return
		}
		defer socket.Close()
		for {
			kind, message, err := socket.ReadMessage()
			if err != nil {
				return
			}
			if socket.WriteMessage(kind, message) != nil {
				return
			}
		}
	}
	log.Fatal(http.ListenAndServe(os.Args[1], http.HandlerFunc(echo)))
}
